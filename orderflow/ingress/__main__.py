"""`python -m orderflow.ingress`: the door, with the settings of the environment."""

from orderflow.ingress.serving import main
from orderflow.stopping import leave

if __name__ == "__main__":
    leave(main())
