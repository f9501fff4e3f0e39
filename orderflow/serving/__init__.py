"""An HTTP server for doors that the world attacks: uvicorn with the limits that it lacks (W08)."""

from orderflow.serving.limits import Limits
from orderflow.serving.server import listen, run_server, served, url_of

__all__ = ["Limits", "listen", "run_server", "served", "url_of"]
