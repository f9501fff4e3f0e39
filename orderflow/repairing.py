"""RepairWorkflow: an operator's signed operation on what an order left behind that no longer runs."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from orderflow.contracts import OPERATE_ON_EFFECT, REPAIR_WORKFLOW_TYPE, RepairAnswer, RepairRequest
    from orderflow.dispatch import read_failure
    from orderflow.domain.errors import ErrorType

_ATTEMPTS = RetryPolicy(maximum_attempts=5, initial_interval=timedelta(seconds=1))


@workflow.defn(name=REPAIR_WORKFLOW_TYPE)
class RepairWorkflow:
    """One operation, from its signature to what came of it."""

    @workflow.run
    async def run(self, *inputs: Any) -> RepairAnswer:
        """Do one operation. Takes one `RepairRequest`; raises `ApplicationError` for anything else."""
        request = _read(inputs)
        try:
            answer: RepairAnswer = await workflow.execute_activity(
                OPERATE_ON_EFFECT,
                request,
                result_type=RepairAnswer,
                start_to_close_timeout=timedelta(minutes=1),
                schedule_to_close_timeout=timedelta(minutes=10),
                heartbeat_timeout=timedelta(seconds=10),
                retry_policy=_ATTEMPTS,
            )
        except ActivityError as error:
            failure = read_failure(error)
            return RepairAnswer(error=failure.error, detail=failure.detail)
        return answer


def _read(inputs: tuple[Any, ...]) -> RepairRequest:
    try:
        [only] = inputs
        return RepairRequest.model_validate(only)
    except (ValueError, ValidationError):
        message = 'this workflow takes one input, {"operation": "<JWS>"}'
        raise ApplicationError(message, type=ErrorType.INVALID_INPUT, non_retryable=True) from None
