"""The configurations of the authorizer."""

from __future__ import annotations

import pytest
from kwire_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from kwire.config.server import ConfigError, load_config
from kwire.config.tables.access import STANDARD_AUTHORIZER
from kwire.metadata.config_description import describe_configs
from kwire.metadata.image import ConfigResourceType
from testkit.metadata.harness import open_service


def test_nobody_decides_unless_it_is_configured() -> None:
    config = load_config()
    assert config.authorizer_class_name == ""
    assert config.super_users == frozenset()
    assert not config.allow_everyone_if_no_acl_found


def test_kafkas_standard_authorizer_may_be_named_with_its_configurations() -> None:
    config = load_config(
        f"authorizer.class.name = {STANDARD_AUTHORIZER}\n"
        "super.users = User:admin; User:CN=node1,OU=ops;\n"
        "allow.everyone.if.no.acl.found = TRUE\n"
    )
    assert config.authorizer_class_name == STANDARD_AUTHORIZER
    assert config.super_users == {"User:admin", "User:CN=node1,OU=ops"}
    assert config.allow_everyone_if_no_acl_found


def test_who_forgets_to_name_the_authorizer_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    load_config("super.users=User:admin")
    [warning] = caplog.messages
    assert warning == "everybody may do everything: without authorizer.class.name, super.users has no effect"
    caplog.clear()
    load_config(f"super.users=User:admin\nauthorizer.class.name={STANDARD_AUTHORIZER}")
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            f"for configuration authorizer.class.name: kwire has only: {STANDARD_AUTHORIZER}",
        ),
        ("super.users=admin", "expected a string in format principalType:principalName but got admin"),
        ("super.users=User:a,b;c", "but got c: separate several principals with semicolons"),
        ("allow.everyone.if.no.acl.found=maybe", "allow.everyone.if.no.acl.found"),
    ],
)
def test_an_unknown_value_is_an_error_at_the_start(setting: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(settings=[setting])
    assert why in str(error.value)


def test_a_setting_of_the_authorizer_only_is_described_if_it_is_set() -> None:
    def described(settings: dict[str, str]) -> dict[str, str | None]:
        service, _ = open_service(settings=settings)
        request = DescribeConfigsRequest([DescribeConfigsResource(ConfigResourceType.BROKER, "1", None)])
        [result] = describe_configs(service.state, request, loggers={}).results
        return {it.name: it.value for it in result.configs}

    assert described({})["authorizer.class.name"] == ""
    assert "super.users" not in described({})
    assert described({"super.users": "User:a"})["super.users"] == "User:a"
