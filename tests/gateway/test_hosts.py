"""Host and Origin: web pages and other machines are refused."""

from __future__ import annotations

import pytest

from afterwit.errors import RequestError
from afterwit.gateway.auth import check_host, check_origin, host_name, is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "tauri.localhost",
    ],
)
def test_all_names_of_this_machine_are_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "example.org", "localhost.example.org", "notlocalhost", "10.0.0.1", "0.0.0.0", "127.1", "::2"],
)
def test_no_other_name_is_loopback(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("a.org", "a.org"),
        ("a.org:80", "a.org"),
        ("[::1]:80", "::1"),
        ("[::1", ""),
        ("", ""),
        ("u@127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_host_header_is_read_without_its_port(authority, name):
    assert host_name(authority) == name


def refused(check, *arguments, **options):
    with pytest.raises(RequestError) as caught:
        check(*arguments, **options)
    assert "gateway.allowed_" in caught.value.message
    return caught.value.status


def test_without_keys_a_foreign_host_is_refused():
    check_host("127.0.0.1:8720", (), keyed=False)
    assert refused(check_host, "evil.org:8720", (), keyed=False) == 403
    assert refused(check_host, None, (), keyed=False) == 403


def test_allowed_hosts_pass_and_with_keys_every_host_passes_unless_some_are_allowed():
    check_host("lab.example:80", ("lab.example",), keyed=False)
    check_host("lab.example", (), keyed=True)
    assert refused(check_host, "lab.example", ("other.example",), keyed=True) == 403


def test_programs_and_pages_of_this_host_pass_and_pages_of_others_do_not():
    check_origin(None, "127.0.0.1:8720", ())
    check_origin("http://localhost:3000", "127.0.0.1:8720", ())
    check_origin("https://lab.example", "lab.example:80", ())
    check_origin("app://board", "127.0.0.1", ("app://board",))
    for origin in ("https://evil.org", "null", "", "http://127.0.0.1.evil.org", "http://evil.org/127.0.0.1"):
        assert refused(check_origin, origin, "127.0.0.1:8720", ()) == 403
