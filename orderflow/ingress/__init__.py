"""The HTTP door: signed events in, orders started, each refusal with one status and one sentence that helps."""
