"""The kinds of stores, by the field of ``manifest.json`` that only they have."""

from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.copies.manifest import CopiesManifest
from cec_mpi.store.format.manifest import Manifest

KINDS: dict[str, type[Manifest]] = {"code": CodedManifest, "replicas": CopiesManifest}
