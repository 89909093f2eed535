"""List what becomes of each field of a reply on the four wires. The rows of a request are in `cnllm/protocols`."""

from __future__ import annotations

from cnllm.protocols.fields import Field, Rows, read_rows

__all__ = ["REASONS", "REPLIES"]

_ROWS: dict[str, Rows] = {
    "openai-chat": {
        "": {
            "translate": "choices usage service_tier",
            "keep": "system_fingerprint moderation metadata",
            "answer": "id object created model obfuscation",
        },
        "choices[]": {"translate": "message delta finish_reason logprobs", "answer": "index"},
        "choices[].message": {
            "translate": "content refusal tool_calls function_call annotations",
            "answer": "role",
            "media": "audio",
        },
        "usage": {
            "translate": "prompt_tokens completion_tokens total_tokens prompt_tokens_details completion_tokens_details"
        },
        "usage.prompt_tokens_details": {
            "translate": "cached_tokens cache_write_tokens",
            "keep": "audio_tokens image_tokens text_tokens",
        },
        "usage.completion_tokens_details": {
            "translate": "reasoning_tokens",
            "keep": "accepted_prediction_tokens audio_tokens rejected_prediction_tokens text_tokens",
        },
    },
    "anthropic-messages": {
        "": {
            "translate": "content stop_reason usage",
            "answer": "id type role model",
            "keep": "stop_sequence stop_details container diagnostics context_management input_transformations",
        },
        "content[]": {
            "translate": """
                text text.text text.citations thinking thinking.thinking tool_use tool_use.id tool_use.name
                tool_use.input
            """,
            "keep": """
                thinking.signature redacted_thinking tool_use.caller tool_use.toolset_name
                server_tool_use web_search_tool_result web_fetch_tool_result code_execution_tool_result
                bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result
                advisor_tool_result mcp_tool_use mcp_tool_result container_upload compaction fallback mcp_tool_listing
            """,
        },
        "delta": {
            "translate": """
                text_delta text_delta.text thinking_delta thinking_delta.thinking input_json_delta
                input_json_delta.partial_json citations_delta citations_delta.citation
            """,
            "answer": "thinking_delta.estimated_tokens",
            "keep": "signature_delta compaction_delta",
        },
        "usage": {
            "translate": """
                input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens output_tokens_details
            """,
            "keep": """
                cache_creation inference_geo server_tool_use service_tier speed fallback_credit iterations
            """,
        },
    },
    "gemini": {
        "": {
            "translate": "candidates usageMetadata",
            "answer": "modelVersion responseId createTime",
            "keep": "modelStatus promptFeedback",
        },
        "candidates[]": {
            "translate": "content finishReason groundingMetadata logprobsResult",
            "answer": "index",
            "keep": """
                citationMetadata urlContextMetadata continuationToken tokenCount avgLogprobs safetyRatings finishMessage
            """,
        },
        "candidates[].content.parts[]": {
            "translate": "text thought functionCall",
            "media": "inlineData fileData",
            "keep": """
                thoughtSignature executableCode codeExecutionResult toolCall toolResponse
                audioTranscription mediaResolution videoMetadata partMetadata mediaProcessing speechMetadata
                documentMetadata spreadsheetMetadata audioMetadata functionResponse
            """,
        },
        "usageMetadata": {
            "translate": """
                promptTokenCount candidatesTokenCount totalTokenCount cachedContentTokenCount thoughtsTokenCount
            """,
            "keep": """
                toolUsePromptTokenCount cacheTokensDetails candidatesTokensDetails promptTokensDetails
                toolUsePromptTokensDetails trafficType
            """,
        },
    },
    "openai-responses": {
        "": {
            "translate": "output usage status incomplete_details error",
            "answer": """
                id object created_at completed_at model background instructions max_output_tokens max_tool_calls
                metadata parallel_tool_calls previous_response_id prompt_cache_key reasoning safety_identifier
                service_tier temperature text tool_choice tools top_logprobs top_p truncation user
            """,
            "keep": """
                access_programs conversation image input_transformations moderation prompt prompt_cache_diagnostics
                prompt_cache_options prompt_cache_retention tool_usage
            """,
        },
        "output[]": {
            "translate": """
                message message.content function_call function_call.call_id function_call.name function_call.arguments
                reasoning reasoning.summary reasoning.content
            """,
            "answer": "*.id *.status message.role",
            "media": "image_generation_call image_generation_call.result",
            "keep": """
                image_generation_call.action image_generation_call.background image_generation_call.error
                image_generation_call.output_format image_generation_call.quality
                image_generation_call.revised_prompt image_generation_call.size image_generation_call.svg_usage
                message.phase reasoning.encrypted_content function_call.async function_call.caller
                function_call.namespace function_call_output file_search_call web_search_call computer_call
                computer_call_output program program_output tool_search_call tool_search_output additional_tools
                compaction code_interpreter_call local_shell_call local_shell_call_output
                shell_call shell_call_output apply_patch_call apply_patch_call_output mcp_call mcp_list_tools
                mcp_approval_request mcp_approval_response custom_tool_call custom_tool_call_output
            """,
        },
        "output[].content[]": {
            "translate": """
                output_text output_text.text output_text.annotations output_text.logprobs refusal refusal.refusal
            """,
        },
        "events": {
            "translate": """
                response.output_text.delta response.output_text.done response.refusal.delta response.refusal.done
                response.reasoning_text.delta response.reasoning_text.done response.reasoning_summary_text.delta
                response.reasoning_summary_text.done response.function_call_arguments.delta
                response.function_call_arguments.done response.output_item.added response.output_item.done
                response.output_text.annotation.added response.completed response.incomplete response.failed error
            """,
            "answer": """
                response.created response.in_progress response.queued response.content_part.added
                response.content_part.done response.reasoning_summary_part.added response.reasoning_summary_part.done
                response.custom_tool_call_input.delta
                response.custom_tool_call_input.done response.code_interpreter_call_code.delta
                response.code_interpreter_call_code.done response.code_interpreter_call.completed
                response.code_interpreter_call.in_progress response.code_interpreter_call.interpreting
                response.compaction.compacting response.file_search_call.completed
                response.file_search_call.in_progress response.file_search_call.searching
                response.shell_call_command.added response.shell_call_command.delta response.shell_call_command.done
                response.shell_call_output_content.delta response.shell_call_output_content.done
                response.web_search_call.completed response.web_search_call.in_progress
                response.web_search_call.searching response.image_generation_call.completed
                response.image_generation_call.generating response.image_generation_call.in_progress
                response.image_generation_call.partial_image response.mcp_call_arguments.delta
                response.mcp_call_arguments.done response.mcp_call.completed response.mcp_call.failed
                response.mcp_call.in_progress response.mcp_list_tools.completed response.mcp_list_tools.failed
                response.mcp_list_tools.in_progress
            """,
            "omit": """
                response.audio.delta
                response.audio.done
                response.audio.transcript.delta
                response.audio.transcript.done
            """,
        },
        "usage": {
            "translate": """
                input_tokens output_tokens total_tokens input_tokens_details output_tokens_details
            """
        },
        "usage.input_tokens_details": {
            "translate": "cached_tokens cache_write_tokens",
            "keep": "cache_write_tokens_details",
        },
        "usage.output_tokens_details": {"translate": "reasoning_tokens"},
    },
}

REPLIES: dict[str, dict[str, dict[str, Field]]] = {protocol: read_rows(rows) for protocol, rows in _ROWS.items()}
"""The rows of a reply, by wire, place and name."""

_NO_SOUND = "the final response has no item for it, and the vendor documents no request that is answered with it"

REASONS = {
    "response.audio.delta": _NO_SOUND,
    "response.audio.done": _NO_SOUND,
    "response.audio.transcript.delta": _NO_SOUND,
    "response.audio.transcript.done": _NO_SOUND,
}
"""Why a field is left out of replies (`omit`)."""
