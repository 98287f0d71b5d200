"""The console of a real server: a setting removes it, and a session holds on every process."""

from __future__ import annotations

import re

import httpx

from tests.main.conftest import Serve
from tests.peeklock_process import PeeklockProcess

FULL = {"principal": "admin", "rights": ["send", "listen", "browse", "manage"]}


def test_a_setting_removes_the_console(serve: Serve) -> None:
    assert httpx.get(f"{serve().url}/console").status_code == 200
    assert httpx.get(f"{serve(console='false').url}/console").status_code == 404


def test_a_session_holds_on_every_process(two_process_server: PeeklockProcess) -> None:
    url = two_process_server.url
    key = httpx.post(f"{url}/v1/keys", json=FULL, headers={"peeklock-local-admin": "true"}).json()
    with httpx.Client(base_url=url, headers={"origin": url}, timeout=60) as browser:
        form = browser.get("/console/sign-in")
        token = re.findall(r'name="csrf_token" value="(\w+)"', form.text)[0]
        signed_in = browser.post("/console/sign-in", data={"csrf_token": token, "api_key": key["secret"]})
        assert signed_in.headers["location"] == "/console"
        cookies = dict(browser.cookies)
    # Each connection may reach another process.
    statuses = [httpx.get(f"{url}/console", cookies=cookies, timeout=60).status_code for _ in range(20)]
    assert statuses == [200] * 20
