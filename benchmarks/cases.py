"""The names of the cases, which the suites give and the goals and the plot look up."""

FRAMED = {
    "m": "one HTTP chunk per event",
    "c": "16 KB HTTP chunks",
    "o": "one HTTP chunk and write per event",
}
EACH, COALESCED = FRAMED["m"], FRAMED["c"]
REQUEST, ASYNC_REQUEST, IN_MEMORY = "not streamed", "not streamed, asyncio", "built and read, nothing is sent"
STREAMS = {64: "64 streams", 256: "256 streams", 1000: "1,000 streams"}
CUT = {"16k": "in 16 KB pieces", "whole": "in one piece", "event": "one event a feed"}
BUILD, VALIDATE = "100 messages, 20 tools", "arguments with 5 properties"
LONG_STREAM, MANY_REQUESTS = "one stream of 50,000 chunks", "2,000 requests"
OFTEN = "50,000 chunks, one event a feed"
FED, STREAMED = "{wire}, StreamParser.feed", "{wire}, a stream"
MARKUP = "10 MB of {name} in one text"
MARKED = "20,000 chunks of {name}, one event a feed"
NOTHING, IMPORT, HELP, ONE_CALL = "nothing", "import", "--help", "one streamed call"
LIST, TAB, KEPT, UNKEPT = "models list", "a model's name completed", "call --simulate", "call --simulate --no-log"
GATEWAY_START, GATEWAY_AFTER = "started", "after all of the load"
GATEWAY_ONE, GATEWAY_MANY = "chat → chat, 1 connection", "chat → chat, 32 connections"
GATEWAY_LONG = "chat → chat, 402 messages with tools"
GATEWAY_HALF, GATEWAY_STREAMS = "chat → chat, half load", "chat → chat, 32 streams of 224 chunks"
MESSAGES_MANY, MESSAGES_STREAMS = "Messages → chat, 32 connections", "Messages → chat, 32 streams of 224 chunks"
LIST_MANY, TAB_MANY = "models list, 5,000 models", "a model's name completed, of 5,000"
BATCH = "a file of rows, 200 at once"
BUILT_IN, UNDESCRIBED, OVERLAY = "the built-in file", "an endpoint no one described", "an overlay of 2,000 lines"
FIRST = "{case}, the first run"
