"""What openai-python must be able to do with edgespec; run by benchmarks.clients in its own venv.

python openai_python.py http://127.0.0.1:8080/v1
"""

# mypy: ignore-errors
# It runs with several versions of the library, whose types differ.

import sys

from openai import BadRequestError, OpenAI, __version__

QUESTION = [{"role": "user", "content": "Name three colours."}]


def refused(client: OpenAI, model: str) -> str | None:
    """The code of the error for a prompt that does not fit."""
    try:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "word " * 50_000}]
        )
    except BadRequestError as error:
        return error.code
    return None


def main() -> None:
    client = OpenAI(base_url=sys.argv[1], api_key="none", _strict_response_validation=True)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model

    whole = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=12, temperature=0, logprobs=True, top_logprobs=2
    )
    text = whole.choices[0].message.content
    assert text
    assert whole.usage.completion_tokens == 12
    assert len(whole.choices[0].logprobs.content) == 12

    stream = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=12, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == text, (said, text)
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens

    predicted = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=12, temperature=0,
        prediction={"type": "content", "content": text},
    )  # fmt: skip
    assert predicted.choices[0].message.content == text
    details = predicted.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0, details

    completed = client.completions.create(
        model=model, prompt=["One, two,", "A, B,"], max_tokens=4, echo=True
    )
    assert [choice.index for choice in completed.choices] == [0, 1]
    likely = client.completions.create(model=model, prompt="One, two,", max_tokens=4, logprobs=1)
    assert len(likely.choices[0].logprobs.token_logprobs) == 4
    # In a stream the reason is null before the end, as OpenAI's own is, which this check refuses.
    lax = OpenAI(base_url=sys.argv[1], api_key="none")
    streamed = lax.completions.create(model=model, prompt="One, two,", max_tokens=4, stream=True)
    assert sum(bool(chunk.choices[0].text) for chunk in streamed) >= 1

    if hasattr(client, "responses"):
        response = client.responses.create(
            model=model, input="Say hello.", max_output_tokens=16, temperature=0
        )
        assert response.output_text
        events = client.responses.create(
            model=model, input="Say hello.", max_output_tokens=16, temperature=0, stream=True
        )
        kinds = [event.type for event in events]
        assert kinds[0] == "response.created", kinds
        assert kinds[-1] in ("response.completed", "response.incomplete"), kinds

    assert refused(client, model) == "context_length_exceeded"
    print(f"openai-python {__version__}: well")


main()
