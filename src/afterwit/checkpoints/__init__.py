"""The folder of versions: manifests, lineage, rollback and locks. Needs no torch."""
