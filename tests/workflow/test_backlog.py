"""What waits for workers, on a server that cannot tell."""

from temporalio.testing import WorkflowEnvironment

from orderflow.client.backlog import look
from orderflow.domain.intake import Look


async def test_the_time_skipping_server_answers_and_tells_nothing_of_a_backlog(env: WorkflowEnvironment) -> None:
    """T38: a door in front of it is open."""
    assert await look(env.client, "orders") == Look()
