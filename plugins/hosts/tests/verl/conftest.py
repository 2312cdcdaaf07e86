"""These tests run where verl is installed: `make test-hosts` makes such an environment."""

from __future__ import annotations

import os

from tests.learning.conftest import _one_thread as _one_thread
from tests.learning.conftest import base as base
from tests.learning.conftest import renderer as renderer
from tests.learning.stage.conftest import processes as processes
from tests.learning.stage.conftest import samples as samples

os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "plugins.hosts.tests.verl.cpu"}
