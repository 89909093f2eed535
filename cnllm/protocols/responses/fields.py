"""List what becomes of each field of a request of OpenAI Responses (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from cnllm.protocols.fields import Outcome, read_fields

__all__ = ["FIELDS"]

_OWN_TOOLS: dict[Outcome, str] = {
    "translate": """
        function function.name function.description function.parameters function.strict custom custom.name
        custom.description custom.format namespace namespace.name namespace.description namespace.tools
        tool_search tool_search.description tool_search.parameters local_shell shell apply_patch
    """,
    "answer": "tool_search.execution shell.environment",
    "permit": "*.defer_loading",
    "keep": "*.allowed_callers *.async function.output_schema",
    "drop": "*.*",
}
"""The tools that the client executes, in a request or in a namespace."""

_CONTENT: dict[Outcome, str] = {
    "translate": "input_text input_text.text output_text output_text.text text text.text refusal refusal.refusal",
    "media": """
        input_image input_image.image_url input_audio input_audio.input_audio input_file input_file.file_data
        input_file.file_url input_file.filename input_image.file_id input_file.file_id
    """,
    "forward": "input_image.detail=detail",
    "return": """
        output_text.annotations output_text.logprobs output_text.prompt_cache_breakpoint output_text.*
        refusal.prompt_cache_breakpoint refusal.*
    """,
    "keep": "input_file.detail *.prompt_cache_breakpoint *.*",
}
"""The parts of a message, and of a result."""

FIELDS = read_fields(
    {
        "": {
            "translate": """
                input:string|array instructions:string tools:array tool_choice:string|object parallel_tool_calls:boolean
                temperature:number top_p:number max_output_tokens:integer reasoning:object text:object
            """,
            "answer": "model:string stream:boolean",
            "reject": "background:boolean conversation:string|object",
            "refuse": "prompt:object previous_response_id:string",
            "forward": """
                top_logprobs:integer metadata:object prompt_cache_key:string prompt_cache_options
                prompt_cache_retention safety_identifier:string service_tier:string user:string
            """,
            "keep": """
                access_programs background_options context_management image include:array max_tool_calls:integer
                moderation stream_options:object truncation:string store:boolean
            """,
        },
        "reasoning": {"translate": "effort", "keep": "summary generate_summary context mode"},
        "text": {"translate": "format", "forward": "verbosity"},
        "text.format": {
            "translate": """
                text json_object json_schema json_schema.name json_schema.schema json_schema.strict
                json_schema.description
            """
        },
        "tool_choice": {
            "translate": """
                function function.name custom custom.name allowed_tools allowed_tools.mode allowed_tools.tools
                apply_patch shell
            """,
            "refuse": """
                mcp file_search web_search_preview web_search_preview_2025_03_11 computer
                computer_use computer_use_preview image_generation code_interpreter programmatic_tool_calling
            """,
        },
        "tools[]": {
            **_OWN_TOOLS,
            "search": "web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11",
            "offer": """
                file_search computer computer_use_preview mcp code_interpreter programmatic_tool_calling
                image_generation
            """,
        },
        "tools[].tools[]": _OWN_TOOLS,
        "input[]": {
            "translate": """
                message message.role message.content function_call function_call.call_id function_call.name
                function_call.namespace function_call.arguments function_call_output function_call_output.call_id
                function_call_output.output custom_tool_call custom_tool_call.call_id custom_tool_call.name
                custom_tool_call.namespace custom_tool_call.input custom_tool_call_output
                custom_tool_call_output.call_id custom_tool_call_output.output tool_search_call
                tool_search_call.call_id tool_search_call.arguments tool_search_output tool_search_output.call_id
                tool_search_output.tools additional_tools additional_tools.tools local_shell_call
                local_shell_call.call_id local_shell_call.action local_shell_call_output local_shell_call_output.output
                shell_call shell_call.call_id shell_call.action shell_call_output shell_call_output.call_id
                shell_call_output.output apply_patch_call apply_patch_call.call_id apply_patch_call.operation
                apply_patch_call_output apply_patch_call_output.call_id apply_patch_call_output.output
                reasoning reasoning.summary reasoning.content agent_message agent_message.content
            """,
            "answer": """
                *.id *.status shell_call.environment tool_search_call.execution tool_search_output.execution
                additional_tools.role function_call_output.name function_call_output.namespace
            """,
            "return": """
                message.phase function_call.caller function_call.async function_call.* custom_tool_call.caller
                custom_tool_call.async shell_call.caller apply_patch_call.caller reasoning.encrypted_content
                reasoning.* file_search_call computer_call computer_call_output web_search_call
                compaction image_generation_call code_interpreter_call mcp_list_tools mcp_approval_request
                mcp_approval_response mcp_call program program_output
            """,
            "keep": """
                message.* agent_message.author agent_message.recipient agent_message.*
                function_call_output.caller function_call_output.* custom_tool_call_output.caller
                shell_call_output.caller apply_patch_call_output.caller compaction_trigger item_reference
                configuration_update
            """,
            "drop": "shell_call_output.max_output_length *.*",
        },
        "input[].tools[]": _OWN_TOOLS,
        "input[].content[]": _CONTENT,
        "input[].output[]": _CONTENT,
    }
)
"""The table of this wire."""
