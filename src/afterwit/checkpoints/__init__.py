"""The folder of versions: manifests, lineage, rollback and locks. Needs no torch."""

from afterwit.checkpoints.lineage import learned, taken_back
from afterwit.checkpoints.lock import exclusive, held
from afterwit.checkpoints.rollback import roll_back
from afterwit.checkpoints.versions import MODEL, STATE, Versions

__all__ = ["MODEL", "STATE", "Versions", "exclusive", "held", "learned", "roll_back", "taken_back"]
