"""${message}.

Why:
Deploy: before | after the code that needs it (expand/contract).
Locks and time on 100M rows:
Way back:
"""

from __future__ import annotations

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "raise SystemExit('write the migration')"}


def downgrade() -> None:
    ${downgrades if downgrades else "raise SystemExit('write the way back')"}
