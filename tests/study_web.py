"""A test client of the annotation service that runs in the process of the test."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from crossmatch.study.assignment import people
from crossmatch.study.database.campaign import Campaign
from crossmatch.study.web.app import make_app
from crossmatch.study.web.connections import ConnectionLimits
from crossmatch.study.web.security import COOKIE, HEADERS
from crossmatch.study.web.server import LOOPBACK, make_server, open_listener
from crossmatch.study.web.site import Site
from study_lab import CORRECT, link_of

BASE_URL = "http://127.0.0.1:8400"
CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]+)">')


class Browser:
    """The browser of one person: keeps cookies and the CSRF token, and follows no redirects."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.http = TestClient(app, base_url=BASE_URL, raise_server_exceptions=False, follow_redirects=False)
        self.csrf = ""

    def join(self, campaign: Campaign, study_id: int, name: str = "") -> Browser:
        response = self.post(f"/join/{link_of(campaign, study_id)}", {"person": name})
        assert response.status_code == 303, response.text
        return self.read_csrf()

    def enter(self, campaign: Campaign, name: str, role: str = "annotator") -> Browser:
        response = self.post(f"/enter/{people.invite(campaign, name, role)}", {})
        assert response.status_code == 303, response.text
        return self.read_csrf()

    def read_csrf(self) -> Browser:
        page = self.http.get("/")
        page = self.http.get("/owner") if page.status_code == 303 else page
        self.csrf = CSRF.search(page.text)[1]
        return self

    @property
    def cookie(self) -> str:
        return self.http.cookies[COOKIE]

    # -- requests, whose responses must have all security headers

    def request(self, method: str, path: str, **more: Any) -> Any:
        response = self.http.request(method, path, **more)
        require_headers(response)
        return response

    def get(self, path: str, **more: Any) -> Any:
        return self.request("GET", path, **more)

    def post(self, path: str, fields: dict[str, str], **more: Any) -> Any:
        return self.request("POST", path, data={"csrf": self.csrf, **fields}, **more)

    def api(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        headers = {"x-csrf-token": self.csrf, **more.pop("headers", {})}
        content = more if "content" in more else {"json": body}
        headers = {"content-type": "application/json", **headers} if "content" in more else headers
        return self.request(method, f"/api{path}", headers=headers, **content)

    def claim(self, study: str = "eccv-hit") -> Any:
        response = self.api("POST", f"/s/{study}/claim", {})
        assert response.status_code == 200, response.text
        return response.json()

    def submit(self, hit: dict[str, Any], answers: list[Any] | None = None) -> Any:
        return self.api("POST", f"/h/{hit['claim']}/submit", {"answers": answers or answers_by_caption(hit), "seconds": None})


@contextmanager
def running_server(campaign: Campaign, **limits: Any) -> Iterator[int]:
    """The service on a free port, in a thread of this process, with these connection limits. Gives the port."""
    server = make_server(campaign, Site(campaign), hosts=LOOPBACK, limits=ConnectionLimits(**limits))
    listener = open_listener("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.001)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def require_headers(response: Any) -> None:
    """Require the security headers on a response."""
    for name, value in HEADERS.items():
        header = response.headers.get(name)
        is_set = header == value or (name == "cache-control" and header)
        assert is_set, f"{response.url}: {response.status_code} has {name}: {header}"


def answers_by_caption(hit: dict[str, Any], other: str = "yes") -> list[dict[str, str]]:
    """Correct answers to gold items, whose captions in these tests name their kind, and `other` to all others."""
    return [{"match": next((v for k, v in CORRECT.items() if k in item["captions"][0]), other)} for item in hit["items"]]


def open_browser(campaign: Campaign, **more: Any) -> Browser:
    return Browser(make_app(campaign, site=Site(campaign, **more)))
