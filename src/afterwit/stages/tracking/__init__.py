"""Tells programs outside what the store knows of each version: a crash loses nothing.

values      the numbers of one version
history     the versions that are new, read from the store
newest      the numbers that hold now
trackers    wandb, TensorBoard, trackio, MLflow
spans       the trace of a turn; traces: which are sent; otlp: to a collector
stage       the loop
"""

from afterwit.stages.tracking.history import Told, news
from afterwit.stages.tracking.newest import Newest, newest
from afterwit.stages.tracking.settings import TrackingSettings
from afterwit.stages.tracking.stage import STAGE, Tracking
from afterwit.stages.tracking.traces import Traces
from afterwit.stages.tracking.trackers import Run, Tracker, missing_module, open_tracker
from afterwit.stages.tracking.values import values_of

__all__ = [
    "STAGE",
    "Newest",
    "Run",
    "Told",
    "Traces",
    "Tracker",
    "Tracking",
    "TrackingSettings",
    "missing_module",
    "newest",
    "news",
    "open_tracker",
    "values_of",
]
