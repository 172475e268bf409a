from __future__ import annotations

from mochi_server.config.installation import own_command


def error_of(response):
    return response.status_code, response.json()["error"]["code"]


async def test_models_that_can_chat_are_listed_with_all_fields(api):
    body = (await api.get("/models")).json()
    names = [model["name"] for model in body["models"]]
    assert "qwen3:14b" in names
    assert "nomic-embed-text:latest" not in names
    first = body["models"][names.index("qwen3:14b")]
    assert {"name", "size_mb", "format", "family", "parameter_size", "quantization_level",
            "capabilities", "context_length", "provider"} <= set(first)  # fmt: skip
    assert first["context_length"] == 40960
    assert first["size_mb"] == round(first["size_mb"], 1)


async def test_a_model_is_shown_by_its_name_with_colon_and_slash(api, ollama):
    ollama.add_model("hf.co/someone/model-GGUF:Q4_K_M")
    for name in ("qwen3:14b", "qwen3%3A14b", "hf.co/someone/model-GGUF:Q4_K_M"):
        response = await api.get(f"/models/{name}")
        assert response.status_code == 200, name
        assert response.json()["name"] == name.replace("%3A", ":")


async def test_an_unknown_model_is_not_found(api):
    assert error_of(await api.get("/models/nobody:1b")) == (404, "MODEL_NOT_FOUND")


async def test_a_model_that_cannot_chat_is_not_there(api):
    name = "nomic-embed-text:latest"
    assert error_of(await api.get(f"/models/{name}")) == (404, "MODEL_NOT_FOUND")
    assert error_of(await api.post("/sessions", {"model": name})) == (404, "MODEL_NOT_FOUND")


async def test_one_model_is_shown_as_in_the_list_before_and_after_it(api):
    before = (await api.get("/models/qwen3:14b")).json()
    (listed,) = (m for m in (await api.get("/models")).json()["models"] if m["name"] == "qwen3:14b")
    assert before == listed == (await api.get("/models/qwen3:14b")).json()


NO_MODEL = {
    "provider": "local",
    "code": "PROVIDER_NOT_CONFIGURED",
    "message": f"no model (run: {own_command()} pull)",
}


async def test_a_provider_without_a_model_says_why(api):
    assert (await api.get("/models")).json()["problems"] == [NO_MODEL]


async def test_a_models_folder_that_cannot_be_read_is_a_problem_and_no_crash(api, mochi):
    mochi.models_path.write_text("not a folder")
    body = (await api.get("/models")).json()
    assert "qwen3:14b" in [model["name"] for model in body["models"]]
    assert body["problems"][0]["message"].endswith("cannot be read: Not a directory")
    health = await api.get("/health")
    assert health.status_code == 200
    assert health.json()["providers"]["local"] == {"reachable": False}


async def test_where_nobody_answers_the_list_is_an_error_that_names_every_problem(api, ollama):
    await ollama.__aexit__(None, None, None)
    response = await api.get("/models")
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")
    problems = response.json()["error"]["details"]["problems"]
    assert [problem["provider"] for problem in problems] == ["ollama", "local"]
    assert problems[1] == NO_MODEL
    assert error_of(await api.get("/models/qwen3:14b")) == (502, "OLLAMA_UNREACHABLE")


async def test_what_another_provider_fails_with_is_documented_at_each_route(api, settings):
    settings.MOCHI_PROVIDERS["openai"]["OPTIONS"] |= {
        "api_key": "sk-test",
        "base_url": "http://127.0.0.1:9/v1",
    }
    session = await api.new_session()
    document = (await api.get("/openapi.json")).json()
    body = {"model": "openai/gpt"}
    for method, path, route in (
        ("GET", "/models/openai/gpt", "/models/{model_name}"),
        ("POST", "/sessions", "/sessions"),
        ("PATCH", f"/sessions/{session}", "/sessions/{session_id}"),
    ):
        response = await api(method, path, None if method == "GET" else body)
        assert error_of(response) == (502, "PROVIDER_UNREACHABLE")
        responses = document["paths"][f"/api/v1{route}"][method.lower()]["responses"]
        assert "PROVIDER_UNREACHABLE" in responses["502"]["description"], route
