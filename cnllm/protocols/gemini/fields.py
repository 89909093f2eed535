"""List what becomes of each field of a request of Gemini generateContent (https://ai.google.dev/api/generate-content).

Names are in camel case. Decoding takes the other spelling of the protocol's JSON mapping as well.
"""

from __future__ import annotations

from cnllm.protocols.fields import Outcome, read_fields

__all__ = ["FIELDS"]

_PARTS: dict[Outcome, str] = {
    "translate": "text thought functionCall functionResponse",
    "media": "inlineData fileData",
    "return": "thoughtSignature executableCode codeExecutionResult toolCall toolResponse audioTranscription",
    "keep": """
        mediaResolution videoMetadata partMetadata mediaProcessing speechMetadata documentMetadata
        spreadsheetMetadata audioMetadata *
    """,
}
_BLOB: dict[Outcome, str] = {"media": "mimeType data fileUri displayName", "keep": "*"}

FIELDS = read_fields(
    {
        "": {
            "translate": """
                contents:array|object systemInstruction:object|string tools:array|object toolConfig:object
                generationConfig:object
            """,
            "answer": "model:string",
            "refuse": "cachedContent:string continuationToken",
            "keep": """
                safetySettings:array|object labels:object serviceTier:string store:boolean modelArmorConfig outputConfig
            """,
        },
        "generationConfig": {
            "translate": """
                temperature topP maxOutputTokens stopSequences seed responseMimeType responseSchema responseJsonSchema
                thinkingConfig
            """,
            "answer": "candidateCount=n",
            "forward": """
                presencePenalty:number frequencyPenalty:number topK:integer logprobs=top_logprobs:integer
                responseLogprobs=logprobs:boolean
            """,
            "keep": """
                responseModalities mediaResolution speechConfig imageConfig
                enableEnhancedCivicAnswers audioTranscriptionConfig audioTimestamp routingConfig modelConfig
                modelSelectionConfig enableAffectiveDialog responseFormat translationConfig
            """,
        },
        "generationConfig.thinkingConfig": {"translate": "thinkingBudget thinkingLevel", "keep": "includeThoughts"},
        "toolConfig": {
            "translate": "functionCallingConfig",
            "keep": "retrievalConfig includeServerSideToolInvocations",
        },
        "toolConfig.functionCallingConfig": {
            "translate": "mode allowedFunctionNames",
            "keep": "streamFunctionCallArguments",
        },
        "tools[]": {
            "translate": "functionDeclarations",
            "search": "googleSearch googleSearchRetrieval",
            "offer": """
                retrieval computerUse fileSearch googleMaps codeExecution enterpriseWebSearch parallelAiSearch
                urlContext mcpServers exaAiSearch
            """,
        },
        "tools[].functionDeclarations[]": {
            "translate": "name description parameters parametersJsonSchema",
            "keep": "response responseJsonSchema behavior",
            "drop": "*",
        },
        "systemInstruction": {"translate": "parts", "answer": "role", "drop": "*"},
        "systemInstruction.parts[]": _PARTS,
        "contents[]": {"translate": "role parts", "drop": "*"},
        "contents[].parts[]": _PARTS,
        "contents[].parts[].inlineData": _BLOB,
        "contents[].parts[].fileData": _BLOB,
        "contents[].parts[].functionCall": {"translate": "id name args", "return": "partialArgs willContinue *"},
        "contents[].parts[].functionResponse": {
            "translate": "id name response parts",
            "keep": "willContinue scheduling *",
        },
    }
)
"""The table of this wire."""
