"""Places that several machines reach: object storage, or a folder.

port       what versions need of one
settings   which place, and how often the optimiser's state goes there
bucket     object storage, by fsspec
folder     a folder on a disk that all machines reach
refusals   what went wrong with object storage, in a sentence
"""

from afterwit.checkpoints.remote.opening import remote_of
from afterwit.checkpoints.remote.port import Remote
from afterwit.checkpoints.remote.settings import VersionsSettings

__all__ = ["Remote", "VersionsSettings", "remote_of"]
