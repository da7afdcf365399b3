"""How migrations run: on a connection that `cohortd.store.migrate` opened, one transaction for each revision.

The driver's own transactions are off and SQLite begins as a writer, or a migration that fails would leave half of
itself behind. Offline (`cohortd db upgrade --sql`) the statements are printed for somebody else to run.
"""

from __future__ import annotations

from alembic import context


def run() -> None:
    """Run the revisions that were asked for."""
    connection = context.config.attributes.get("connection")
    if context.is_offline_mode():
        context.configure(
            dialect_name=context.config.attributes["engine"], literal_binds=True, transaction_per_migration=True
        )
        with context.begin_transaction():
            context.run_migrations()
        return
    context.configure(connection=connection, transaction_per_migration=True, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


run()
