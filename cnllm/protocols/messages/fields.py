"""List what becomes of each field of a request of Anthropic Messages (https://docs.claude.com/en/api/messages)."""

from __future__ import annotations

from cnllm.protocols.fields import read_fields

__all__ = ["FIELDS"]

FIELDS = read_fields(
    {
        "": {
            "translate": """
                messages:array system:string|array max_tokens temperature:number top_p:number stop_sequences:array
                tools:array tool_choice:object thinking:object output_config:object output_format:object
            """,
            "answer": "model:string stream:boolean",
            "forward": "top_k:integer",
            "reject": "thread",
            "refuse": "container mcp_servers:array",
            "keep": """
                cache_control service_tier:string metadata:object context_management diagnostics inference_geo speed
                user_profile_id workspace_id billing_policy compaction fallback_credit_token fallbacks betas
            """,
        },
        "thinking": {"translate": "type budget_tokens", "keep": "display"},
        "output_config": {"translate": "format effort", "keep": "task_budget"},
        "tool_choice": {
            "translate": """
                auto any none tool tool.name auto.disable_parallel_tool_use any.disable_parallel_tool_use
                tool.disable_parallel_tool_use
            """
        },
        "tools[]": {
            "translate": "custom custom.name custom.description custom.input_schema custom.strict",
            "permit": "custom.defer_loading",
            "keep": """
                custom.cache_control custom.allowed_callers custom.eager_input_streaming custom.input_examples
                custom.*
            """,
            "search": "web_search_20250305 web_search_20260209 web_search_20260318",
            "offer": """
                bash_20241022 bash_20250124 code_execution_20250522 code_execution_20250825 code_execution_20260120
                code_execution_20260521 browser_toolset_20260801 memory_20250818 computer_20241022 computer_20250124
                computer_20251124 computer_toolset_20260801 text_editor_20241022 text_editor_20250124
                text_editor_20250429 text_editor_20250728 web_fetch_20250910
                web_fetch_20260209 web_fetch_20260309 web_fetch_20260318 advisor_20260301
                tool_search_tool_bm25_20251119 tool_search_tool_bm25 tool_search_tool_regex_20251119
                tool_search_tool_regex mcp_toolset
            """,
        },
        "system[]": {"translate": "text text.text", "permit": "*.cache_control", "keep": "text.citations text.*"},
        "messages[]": {"translate": "role content output_config", "drop": "clear_at *"},
        "messages[].content[]": {
            "translate": """
                text text.text thinking thinking.thinking tool_use tool_use.id tool_use.name tool_use.input tool_result
                tool_result.tool_use_id tool_result.content tool_result.is_error search_result
                search_result.title search_result.source search_result.content tool_addition tool_addition.tool
                tool_removal tool_removal.tool
            """,
            "media": "image image.source document document.source document.title document.context",
            "return": """
                thinking.signature thinking.* redacted_thinking server_tool_use web_search_tool_result
                web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result
                text_editor_code_execution_tool_result tool_search_tool_result advisor_tool_result mcp_tool_use
                mcp_tool_result compaction mcp_tool_listing fallback
                tool_use.caller tool_use.toolset_name tool_use.*
            """,
            "permit": "*.cache_control",
            "describe": "container_upload",
            "keep": """
                text.citations text.* document.citations search_result.citations search_result.* image.transformations
                image.* tool_result.toolset_name tool_result.*
            """,
            "drop": "document.* thinking.cache_control",
        },
        "messages[].content[].content[]": {
            "translate": """
                text text.text search_result search_result.title search_result.source search_result.content
                tool_reference tool_reference.tool_name browser_state browser_state.tabs browser_state.state_changes
            """,
            "media": "image image.source document document.source document.title document.context",
            "keep": """
                *.cache_control text.citations document.citations search_result.citations image.transformations *.*
            """,
        },
    }
)
"""The table of this wire."""
