"""What a run says of the page of its flow run."""

import pytest

OWN = "http://127.0.0.1:4200"


@pytest.mark.parametrize(
    ("address", "pages", "url"),
    [(None, True, None), (f"{OWN}/api", False, None), (f"{OWN}/api", True, f"{OWN}/page")],
)
def test_run_names_its_page_only_where_the_server_has_pages(monkeypatch, address, pages, url):
    from prefect import runtime, settings
    from prefect.settings import temporary_settings

    from bigfs.flows import prefect_flows

    for name in ("get_id", "get_name", "get_flow_name"):
        monkeypatch.setattr(runtime.flow_run, name, lambda: "x")
    monkeypatch.setattr(
        runtime.flow_run, "get_flow_run_ui_url", lambda: f"{settings.PREFECT_UI_URL.value()}/page"
    )
    with temporary_settings(
        {settings.PREFECT_API_URL: address, settings.PREFECT_SERVER_UI_ENABLED: pages}
    ):
        assert prefect_flows._flow_run_info()["url"] == url
