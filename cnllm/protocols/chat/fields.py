"""List what becomes of each field of a request of OpenAI chat completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

from cnllm.protocols.fields import read_fields

__all__ = ["FIELDS"]

FIELDS = read_fields(
    {
        "": {
            "translate": """
                messages:array tools:array tool_choice:string|object parallel_tool_calls:boolean temperature:number
                top_p:number max_tokens:integer max_completion_tokens:integer stop:string|array seed:integer
                reasoning_effort:string response_format:object functions:array function_call:string|object
            """,
            "answer": "model:string stream:boolean stream_options:object n:integer",
            "forward": """
                presence_penalty:number frequency_penalty:number logit_bias:object logprobs:boolean top_logprobs:integer
                metadata:object prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier
                service_tier:string user:string verbosity:string
            """,
            "keep": """
                audio:object modalities:array moderation prediction store:boolean
            """,
            "search": "web_search_options",
        },
        "stream_options": {"answer": "include_usage include_obfuscation"},
        "response_format": {"translate": "text json_object json_schema json_schema.json_schema"},
        "response_format.json_schema": {"translate": "name schema description strict"},
        "tools[]": {
            "translate": """
                function function.function custom custom.custom *.name *.description *.parameters *.input_schema
                *.format *.strict
            """,
            "permit": "*.cache_control *.defer_loading",
            "drop": "*.*",
        },
        "tools[].function": {"translate": "name description parameters strict", "drop": "*"},
        "tools[].custom": {"translate": "name description format", "drop": "*"},
        "tool_choice": {
            "translate": """
                function function.function custom custom.custom allowed_tools allowed_tools.allowed_tools
            """
        },
        "messages[]": {
            "translate": "role content tool_calls tool_call_id refusal function_call",
            "return": "audio",
            "permit": "name *",
        },
        "messages[].tool_calls[]": {
            "translate": "function function.id function.function custom custom.id custom.custom",
            "answer": "*.index",
            "return": "*.*",
        },
        "messages[].tool_calls[].function": {"translate": "name arguments", "drop": "*"},
        "messages[].tool_calls[].custom": {"translate": "name input", "drop": "*"},
        "messages[].content[]": {
            "translate": "text text.text refusal refusal.refusal",
            "media": """
                image_url image_url.image_url input_audio input_audio.input_audio file file.file audio_url
                audio_url.audio_url video_url video_url.video_url
            """,
            "forward": "*.cache_control",
            "keep": "*.prompt_cache_breakpoint text.*",
            "drop": "*.*",
        },
        "messages[].content[].image_url": {"media": "url", "forward": "detail", "keep": "*"},
        "messages[].content[].file": {"media": "file_data filename file_id", "keep": "*"},
    }
)
"""The table of this wire."""
