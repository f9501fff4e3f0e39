from pathlib import Path

import pytest
from hypothesis import settings

# Asserts in modules that tests share explain themselves too, and run under `python -O`. Not "tests" itself: it is
# imported before this file.
pytest.register_assert_rewrite(
    *(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir() if path != Path(__file__))
)

# How long an example takes says more about the machine than about the code.
settings.register_profile("any-machine", settings.default, deadline=None)
settings.load_profile("any-machine")
