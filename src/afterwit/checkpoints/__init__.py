"""The folder of versions: manifests, lineage, rollback and locks. Needs no torch."""

from afterwit.checkpoints.files import MODEL, STATE
from afterwit.checkpoints.lineage import learned, taken_back
from afterwit.checkpoints.lock import exclusive, held
from afterwit.checkpoints.remote import VersionsSettings, remote_of
from afterwit.checkpoints.rollback import roll_back
from afterwit.checkpoints.shared import SharedVersions
from afterwit.checkpoints.versions import Versions

__all__ = [
    "MODEL",
    "STATE",
    "SharedVersions",
    "Versions",
    "VersionsSettings",
    "exclusive",
    "held",
    "learned",
    "remote_of",
    "roll_back",
    "taken_back",
]
