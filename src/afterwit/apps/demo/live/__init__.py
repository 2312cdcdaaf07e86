"""The demo on the real system: gateway, engine, judge and learner, with people one after another."""

from afterwit.apps.demo.live.judge_check import judge_accuracy
from afterwit.apps.demo.live.run import Measurement, Observer, Run
from afterwit.apps.demo.live.system import LiveSystem, Rules, live

__all__ = ["LiveSystem", "Measurement", "Observer", "Rules", "Run", "judge_accuracy", "live"]
