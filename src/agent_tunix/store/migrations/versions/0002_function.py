"""The name of the function in a file."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the functions of earlier uploads are called `reward`."""
    op.add_column("reward_functions", sa.Column("function", sa.String(100), nullable=False, server_default="reward"))
