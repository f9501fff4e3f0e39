"""`python -m orderflow.ingress`: the door, with the settings of the environment."""

import logging
import os
import sys

from orderflow.ingress.serving import main

if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # an interpreter that ends beside the SDK's threads may abort instead (134, 139)
