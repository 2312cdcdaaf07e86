"""These tests run where verl is installed: `make test-hosts` makes such an environment."""

from __future__ import annotations

import os

from tests.learner.conftest import _one_thread as _one_thread
from tests.learner.conftest import base as base
from tests.learner.conftest import renderer as renderer
from tests.stages.learn.conftest import processes as processes
from tests.stages.learn.conftest import samples as samples

os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "tests.hosts.verl.cpu"}
