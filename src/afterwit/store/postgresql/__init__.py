"""The store's port over one PostgreSQL database. Needs the extra `postgresql`."""

from afterwit.store.postgresql.store import PostgresqlStore

__all__ = ["PostgresqlStore"]
