"""Visitors of the annotation service within the test's own process."""

from __future__ import annotations

import re
from typing import Any

from starlette.testclient import TestClient

from crossmatch.study.assignment import people
from crossmatch.study.database.campaign import Campaign
from crossmatch.study.web.app import make_app
from crossmatch.study.web.page_context import Site
from crossmatch.study.web.security import COOKIE, HEADERS
from study_lab import RIGHT, link_of

BASE = "http://127.0.0.1:8400"
CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]+)">')


class Browser:
    """Somebody's browser: keeps cookies, follows no redirection by itself, and knows the secret of our pages."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.http = TestClient(app, base_url=BASE, raise_server_exceptions=False, follow_redirects=False)
        self.csrf = ""

    def join(self, campaign: Campaign, study_id: int, name: str = "") -> Browser:
        answer = self.post(f"/join/{link_of(campaign, study_id)}", {"person": name})
        assert answer.status_code == 303, answer.text
        return self._known()

    def enter(self, campaign: Campaign, name: str, role: str = "annotator") -> Browser:
        answer = self.post(f"/enter/{people.invite(campaign, name, role)}", {})
        assert answer.status_code == 303, answer.text
        return self._known()

    def _known(self) -> Browser:
        page = self.http.get("/")
        page = self.http.get("/owner") if page.status_code == 303 else page
        self.csrf = CSRF.search(page.text)[1]
        return self

    @property
    def cookie(self) -> str:
        return self.http.cookies[COOKIE]

    # -- requests that must bring all headers back

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self.http.request(method, path, **more)
        require_headers(answer)
        return answer

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, **more)

    def post(self, path: str, fields: dict[str, str], **more: Any) -> Any:
        return self.ask("POST", path, data={"csrf": self.csrf, **fields}, **more)

    def api(self, method: str, path: str, told: Any = None, **more: Any) -> Any:
        headers = {"x-csrf-token": self.csrf, **more.pop("headers", {})}
        body = more if "content" in more else {"json": told}
        headers = {"content-type": "application/json", **headers} if "content" in more else headers
        return self.ask(method, f"/api{path}", headers=headers, **body)

    def claim(self, study: str = "eccv-hit") -> Any:
        answer = self.api("POST", f"/s/{study}/claim", {})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(self, hit: dict[str, Any], answers: list[Any] | None = None) -> Any:
        return self.api("POST", f"/h/{hit['claim']}/submit", {"answers": answers or answers_by_caption(hit), "seconds": None})


def require_headers(answer: Any) -> None:
    """Every answer says what a browser may do with it."""
    for name, value in HEADERS.items():
        response = answer.headers.get(name)
        assert response == value or (name == "cache-control" and response), (
            f"{answer.url}: {answer.status_code} has {name}: {response}"
        )


def answers_by_caption(hit: dict[str, Any], other: str = "yes") -> list[dict[str, str]]:
    """Answers to gold as they must be: the captions of the tests' gold tell it."""
    return [{"match": next((v for k, v in RIGHT.items() if k in item["captions"][0]), other)} for item in hit["items"]]


def site_of(campaign: Campaign, **more: Any) -> Browser:
    return Browser(make_app(campaign, site=Site(campaign, **more)))
