"""ReconcileWorkflow: one reconciliation, begun by a person or by a schedule."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from orderflow.contracts import RECONCILE, RECONCILE_WORKFLOW_TYPE, ReconcileReport, ReconcileRequest
    from orderflow.domain.errors import ErrorType, InvalidInput
    from orderflow.domain.intents import canonical_json
    from orderflow.domain.problems import problems_in, summary

_ATTEMPTS = RetryPolicy(
    maximum_attempts=5, initial_interval=timedelta(seconds=5), maximum_interval=timedelta(minutes=5)
)


@workflow.defn(name=RECONCILE_WORKFLOW_TYPE)
class ReconcileWorkflow:
    """The ledger against the providers against Temporal, once."""

    @workflow.run
    async def run(self, *inputs: Any) -> ReconcileReport:
        """Reconcile. Takes one `ReconcileRequest`, or nothing for its defaults; raises `ApplicationError` for more."""
        report: ReconcileReport = await workflow.execute_activity(
            RECONCILE,
            _read(inputs),
            result_type=ReconcileReport,
            start_to_close_timeout=timedelta(hours=6),
            schedule_to_close_timeout=timedelta(days=1),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=_ATTEMPTS,
        )
        return report


def _read(inputs: tuple[Any, ...]) -> ReconcileRequest:
    try:
        if len(inputs) > 1:
            raise InvalidInput(f"a reconciliation starts with at most one input, not {len(inputs)}")
        return ReconcileRequest.model_validate_json(canonical_json(inputs[0] if inputs else {}))
    except ValidationError as error:
        fault = summary(problems_in(error))
    except InvalidInput as error:
        fault = error.message
    raise ApplicationError(fault, type=ErrorType.INVALID_INPUT, non_retryable=True)
