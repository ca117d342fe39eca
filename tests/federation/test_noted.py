"""What a host writes down is all that a host of another process needs to refuse what the first would refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from raydr.federation import ClientHost, HostedClient, Request, fingerprint
from raydr.federation.client import HostSecrets
from raydr.federation.failures import Failure, Kind
from raydr.federation.wire import Answer, Call
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.requests import site_policy
from raydr.privacy.policy import Policy
from raydr.privacy.secrets import Secret
from raydr.statistics.filling import BelowRequest
from raydr.statistics.moments import ordered

ROWS = np.arange(60, dtype=np.float64).reshape(20, 3)
SECRETS = HostSecrets({0: Secret(bytes(32))})


def host_of(**policy: Any) -> ClientHost:
    site = site_policy([Policy.model_validate(policy)], "Basel")
    return ClientHost(hosted=[HostedClient(0, ROWS, fingerprint(ROWS), site)], seed=0, host_secrets=SECRETS)


def asked(host: ClientHost, request: Request[Any], number: int = 1) -> Answer:
    call = Call(request=request, number=number, round=0, attempt=0, clients=(0,), in_rounds=False)
    (answer,) = host.ask(call)
    return answer


def below(bound: float) -> BelowRequest:
    """How many values of each feature are at most this."""
    return BelowRequest(ordered(np.full((2, 3), bound)), len(ROWS))


LANDMARKS = np.eye(3)
CASES: dict[str, tuple[dict[str, Any], Request[Any], Request[Any], Kind]] = {
    "other landmarks": (
        {},
        DistanceRequest(LANDMARKS),
        DistanceRequest(LANDMARKS + 1.0),
        Kind.REQUEST_REFUSED,
    ),
    "a bound near another": ({"least_count": 5}, below(30.0), below(36.0), Kind.POLICY),
}


@pytest.mark.parametrize("case", CASES)
def test_another_process_refuses_what_the_first_would_refuse(case: str) -> None:
    policy, first, second, kind = CASES[case]
    lasting, restarted, forgetful = host_of(**policy), host_of(**policy), host_of(**policy)
    answer = asked(lasting, first)
    assert not isinstance(answer, Failure), answer
    restarted.recall(0, json.loads(json.dumps(lasting.noted(0))))
    assert not isinstance(asked(forgetful, second), Failure), "alone, it is harmless"
    refused, again = asked(lasting, second, 2), asked(restarted, second, 2)
    assert isinstance(refused, Failure)
    assert refused.kind is kind
    assert again == refused
    assert restarted.noted(0) == lasting.noted(0)
