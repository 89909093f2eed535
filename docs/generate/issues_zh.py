"""Say a known issue of an endpoint in Chinese."""

from __future__ import annotations

import re

__all__ = ["in_chinese"]

_MODES = {
    "while it reasons": "思考时",
    "while it does not reason": "不思考时",
    "with tools": "带工具时",
    "without tools": "不带工具时",
    "in a stream": "流式时",
    "in a whole reply": "非流式时",
    "with a schema": "要求 JSON Schema 时",
    "with strict tools": "工具为 strict 时",
    "with a forced call": "强制调用工具时",
    "with pictures": "带图片时",
}

_ISSUES = (
    (
        r"always reasons; a request without reasoning gets it all the same, and a note",
        "始终思考；请求关闭思考也照样思考，cnllm 会给出说明",
    ),
    (r"takes no reasoning of earlier turns; cnllm leaves it out", "不接受之前各轮的思考内容；cnllm 会去掉"),
    (
        r"wants the reasoning of turns with tool calls back; cnllm sends it",
        "要求回传调用过工具的轮次的思考内容；cnllm 会回传",
    ),
    (
        r"wants the reasoning since the last message of the user back; cnllm sends it",
        "要求回传最近一条用户消息之后的思考内容；cnllm 会回传",
    ),
    (r"wants the reasoning of every earlier turn back; cnllm sends it", "要求回传之前每一轮的思考内容；cnllm 会回传"),
    (
        r"refuses earlier turns without reasoning; cnllm sends an empty text where there is none",
        "拒绝没有思考内容的轮次；缺少时 cnllm 发送空文本",
    ),
    (
        r"refuses earlier turns without reasoning; cnllm sends a space where there is none",
        "拒绝没有思考内容的轮次；缺少时 cnllm 发送一个空格",
    ),
    (
        r"refuses earlier turns without reasoning; where one has none, cnllm asks without reasoning",
        "拒绝没有思考内容的轮次；缺少时 cnllm 改为不思考",
    ),
    (
        r"may write its reasoning between (.+) and (.+) in the text; cnllm takes it out",
        "可能把思考内容写在正文的 `{0}` 和 `{1}` 之间；cnllm 会分离出来",
    ),
    (
        r"may write tool calls as text; cnllm makes calls of those that were offered",
        "可能把工具调用写成文字；对已提供的工具，cnllm 会还原成真正的调用",
    ),
    (r"takes no tools; cnllm describes them in the prompt", "不支持工具调用；cnllm 会在提示词里描述工具"),
    (r"makes one tool call at a time", "一次只发出一个工具调用"),
    (r"takes no pictures in a tool's result", "工具结果里不能有图片"),
    (r"does not stream tool calls; cnllm asks for the whole reply", "工具调用不支持流式返回；cnllm 改为非流式请求"),
    (r"ends a stream with \[DONE\] alone; one without it was cut", "流只以 \\[DONE\\] 表示结束；没有它就是被截断了"),
    (r"refuses the role developer; cnllm sends system", "拒绝 developer 角色；cnllm 改为 system"),
    (
        r"takes system messages at the beginning only; cnllm moves or joins them",
        "系统消息只能放在开头；cnllm 会移动或合并",
    ),
    (
        r"has no role for system messages; cnllm sends them as the user's",
        "没有系统消息这一角色；cnllm 作为用户消息发送",
    ),
    (r"refuses two messages of one role in a row; cnllm joins them", "拒绝同一角色的两条连续消息；cnllm 会合并"),
    (
        r"refuses a conversation that the assistant begins; cnllm puts a user message first",
        "拒绝由 assistant 开头的对话；cnllm 会在前面加一条用户消息",
    ),
    (r"takes no list of text parts; cnllm sends one string", "不接受文本部件的列表；cnllm 发送一个字符串"),
    (
        r"has no JSON Schema for answers; cnllm asks for a tool call with the schema",
        "不支持 JSON Schema 结构化输出；cnllm 改为要求带该 schema 的工具调用",
    ),
    (
        r"has no JSON Schema for answers; cnllm uses its JSON mode and .+",
        "不支持 JSON Schema 结构化输出；cnllm 用它的 JSON 模式，把 schema 写进提示词，并检查回答",
    ),
    (
        r"has no JSON Schema for answers; cnllm uses the schema in the prompt, and checks the answer",
        "不支持 JSON Schema 结构化输出；cnllm 把 schema 写进提示词，并检查回答",
    ),
    (r"is retired", "已下线"),
    (
        r"refuses tool_choice (.+); cnllm sends auto, with the named tool alone",
        "`tool_choice` 不能是{0}；cnllm 改为 auto，指定了某个工具时只提供那一个",
    ),
    (r"refuses tool_choice (.+); cnllm turns reasoning off instead", "`tool_choice` 不能是{0}；cnllm 改为关闭思考"),
    (r"refuses tool_choice (.+); cnllm raises CannotSend", "`tool_choice` 不能是{0}；cnllm 抛出 CannotSend"),
    (r"refuses tool_choice (.+); cnllm sends auto", "`tool_choice` 不能是{0}；cnllm 改为 auto"),
    (r"refuses (\w+); cnllm leaves it out, with a note", "拒绝 `{0}`；cnllm 会去掉，并给出说明"),
    (r"takes (\w+) and ignores it; a note says so", "接受 `{0}` 但会忽略；cnllm 会给出说明"),
    (
        r"takes (\w+) from (\S+) up to (\S+) only; cnllm .+",
        "`{0}` 只能在 {1} 到 {2} 之间；超出时 cnllm 会移到范围内或去掉",
    ),
    (r"takes (\w+) of at least (\S+) only; cnllm .+", "`{0}` 不能小于 {1}；超出时 cnllm 会移到范围内或去掉"),
    (r"takes (\w+) up to (\S+) only; cnllm .+", "`{0}` 不能大于 {1}；超出时 cnllm 会移到范围内或去掉"),
    (r"takes one value for (\w+)", "`{0}` 只接受一个值"),
    (r"takes at most (\d+) values for (\w+)", "`{1}` 最多接受 {0} 个值"),
)

_CHOICES = {"none": " `none`", "required": " `required`", "a named tool": "指定的工具"}


def in_chinese(text: str) -> str:
    """Return the sentence of a known issue in Chinese. Raises `LookupError` for one that has no rule here."""
    mode, colon, rest = text.rstrip(".").partition(": it ")
    sentence = rest if colon else mode.removeprefix("It ")
    prefix = ""
    if colon:
        conditions = [part.strip() for part in mode[0].lower().join(["", mode[1:]]).split(" and ")]
        if any(condition not in _MODES for condition in conditions):
            raise LookupError(f"docs/generate/issues_zh.py: no Chinese for the mode {mode!r}")
        prefix = "、".join(_MODES[condition] for condition in conditions) + "："
    for pattern, translation in _ISSUES:
        if (match := re.fullmatch(pattern, sentence)) is not None:
            values = ["、".join(_CHOICES.get(part, part) for part in value.split(", ")) for value in match.groups()]
            return prefix + translation.format(*(value.replace("、 ", "、") for value in values))
    raise LookupError(f"docs/generate/issues_zh.py: no Chinese for {sentence!r}")
