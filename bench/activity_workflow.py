"""The workflow whose round trip is measured, in a file of its own: the sandbox imports the module for each run."""

from datetime import timedelta

from temporalio import workflow

BARE = "call_provider"
THROUGH_LEDGER = "call_provider_through_ledger"


@workflow.defn
class OneActivity:
    """Runs the activity `name` once."""

    @workflow.run
    async def run(self, name: str, order: str) -> str:
        """Give what the activity gives for `order`."""
        result: str = await workflow.execute_activity(name, order, start_to_close_timeout=timedelta(seconds=10))
        return result
