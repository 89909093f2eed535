"""Flags of a vendor's own batch interface: rows go in together, cost less, and come back within hours."""

from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import Base, flag

__all__ = ["Batch", "BatchJob", "BatchList", "BatchResult", "BatchResults", "BatchRow", "BatchSubmit", "BatchUpload"]

_SHAPE = "Batch interfaces do the same with other names."
_LIMIT = "The vendor refuses a whole job that is larger."


class BatchRow(Base, frozen=True):
    """The form of a row on its way to the vendor."""

    id: Annotated[str | None, flag("The path of the row's id.", _SHAPE, path="write")] = None
    body: Annotated[str | None, flag("The path of the request's body.", _SHAPE, path="write")] = None
    set: Annotated[dict[str, Any] | None, flag("The fixed keys of each row.", "Some want the path of a call.")] = None


class BatchUpload(Base, frozen=True):
    """The upload of a file of rows: a multipart form with one file."""

    path: Annotated[str | None, flag("The path of the upload after `base_url`.", _SHAPE)] = None
    set: Annotated[dict[str, str] | None, flag("The other fields of the form.", "Files have a purpose.")] = None
    id: Annotated[str | None, flag("The path of the file's id in the response.", _SHAPE, path="read")] = None


class BatchSubmit(Base, frozen=True):
    """The request that starts a job."""

    path: Annotated[str | None, flag("The path after `base_url`; {model} is replaced by the model's id.", _SHAPE)] = (
        None
    )
    file: Annotated[str | None, flag("The path of the file's id in the body.", _SHAPE, path="write")] = None
    files: Annotated[
        str | None,
        flag("The path of a list of file ids in the body.", "Some take several files at once.", path="write"),
    ] = None
    rows: Annotated[
        str | None, flag("The path of the list of rows in the body, where no file is uploaded.", _SHAPE, path="write")
    ] = None
    model: Annotated[
        str | None,
        flag("The path of the model's id in the body.", "Some jobs name the model once for all rows.", path="write"),
    ] = None
    mark: Annotated[
        str | None,
        flag(
            "The path of a text of the client's in the body, which the job carries: metadata or a name.",
            "After a crash the job is found by it, and is not paid twice.",
            path="write",
        ),
    ] = None
    set: Annotated[dict[str, Any] | None, flag("The fixed keys of the body.", "Most want a path and a window.")] = None


class BatchJob(Base, frozen=True):
    """A job as the vendor describes it, in answer to the submission, when polled and in the list."""

    path: Annotated[str | None, flag("The path of a job after `base_url`; {id} is its id.", _SHAPE)] = None
    id: Annotated[str | None, flag("The path of its id.", _SHAPE, path="read")] = None
    state: Annotated[str | None, flag("The path of its state.", _SHAPE, path="read")] = None
    states: Annotated[
        dict[str, Literal["pending", "done", "failed", "cancelled", "expired"]] | None,
        flag("The vendor's words for states → cnllm's. A word that is not here counts as pending.", _SHAPE),
    ] = None
    mark: Annotated[
        str | None,
        flag(
            "The path of the client's text.", "It stands elsewhere in some answers than in the submission.", path="read"
        ),
    ] = None
    created: Annotated[
        str | None, flag("The path of its time of creation: seconds since 1970, or ISO 8601.", _SHAPE, path="read")
    ] = None
    finished: Annotated[
        list[str] | None,
        flag("The paths of counts of finished rows, which are added up for the progress.", _SHAPE, path="read"),
    ] = None
    errors: Annotated[
        str | None,
        flag(
            "The path of what was wrong with a job that failed: a list or one object.",
            "Some name the line at fault, which cnllm leads back to the row of the input.",
            path="read",
        ),
    ] = None
    cancel: Annotated[
        str | None,
        flag("The path to which an empty POST cancels a job; {id} is its id.", _SHAPE),
    ] = None


class BatchList(Base, frozen=True):
    """The list of the account's jobs, in which a job is found again after a crash."""

    path: Annotated[str | None, flag("The path of the list after `base_url`, with its fixed query.", _SHAPE)] = None
    items: Annotated[str | None, flag("The path of the jobs in a page.", _SHAPE, path="read")] = None
    pages: Annotated[
        Literal["token", "last-id", "number"] | None,
        flag(
            "How the next page is named: by a token in the page, by the id of the last job, by its number from 0.",
            _SHAPE,
        ),
    ] = None
    parameter: Annotated[str | None, flag("The query parameter that names the next page.", _SHAPE)] = None
    token: Annotated[str | None, flag("The path of the token of the next page.", _SHAPE, path="read")] = None
    more: Annotated[
        str | None,
        flag(
            "The path of a boolean: whether there is another page.",
            "Without one a page that holds no jobs, or no token, is the last.",
            path="read",
        ),
    ] = None
    delay: Annotated[
        float | None,
        flag(
            "The seconds after which a new job is sure to stand in the list; 60 where it is unknown.",
            "A list may lag behind, and a job that is not found is submitted again.",
        ),
    ] = None


class BatchResults(Base, frozen=True):
    """The place of the results of a job."""

    path: Annotated[
        str | None,
        flag("The path of a file of results after `base_url`; {file} and {id} are filled in.", _SHAPE),
    ] = None
    files: Annotated[
        list[str] | None,
        flag(
            "The paths of the ids of its result files in a job; a job may lack any.",
            "Errors may have their own.",
            path="read",
        ),
    ] = None
    rows: Annotated[
        str | None, flag("The path of the list of results in a job that holds them itself.", _SHAPE, path="read")
    ] = None


class BatchResult(Base, frozen=True):
    """The form of the result of a row."""

    id: Annotated[str | None, flag("The path of the row's id.", _SHAPE, path="read")] = None
    body: Annotated[
        list[str] | None, flag("The paths of the response's body, whose first is taken.", _SHAPE, path="read")
    ] = None
    status: Annotated[
        str | None, flag("The path of the response's HTTP status; 200 where there is none.", _SHAPE, path="read")
    ] = None
    error: Annotated[
        list[str] | None, flag("The paths of the error of a row without a response.", _SHAPE, path="read")
    ] = None
    kind: Annotated[str | None, flag("The path of the word that says what became of the row.", _SHAPE, path="read")] = (
        None
    )
    unserved: Annotated[
        list[str] | None,
        flag(
            "The words of that place for a row that was not served and not paid: expired, cancelled.",
            "Such rows are asked again, one by one.",
        ),
    ] = None


class Batch(Base, frozen=True):
    """A vendor's batch interface."""

    available: Annotated[
        bool | None,
        flag(
            "Whether the endpoint serves the model in batches.",
            "A wire's table describes the common shape; not every endpoint of that wire has the interface.",
        ),
    ] = None
    input: Annotated[
        Literal["file", "inline", "calls"] | None,
        flag(
            "How rows reach the vendor: in a file that is uploaded, in the request that starts the job, or as single "
            "calls to `batch.path`, which wait for hours.",
            "Interfaces differ most in this.",
        ),
    ] = None
    path: Annotated[
        str | None, flag("The path of single calls after `base_url`.", "Slow calls have a path of their own.")
    ] = None
    row: Annotated[BatchRow | None, flag("The form of a row on its way to the vendor.", _SHAPE)] = None
    upload: Annotated[BatchUpload | None, flag("The upload of a file of rows.", _SHAPE)] = None
    submit: Annotated[BatchSubmit | None, flag("The request that starts a job.", _SHAPE)] = None
    job: Annotated[BatchJob | None, flag("A job as the vendor describes it.", _SHAPE)] = None
    list_: Annotated[
        BatchList | None,
        flag("The list of the account's jobs.", "After a crash the job is found in it, and is not submitted again."),
    ] = field(default=None, name="list")
    results: Annotated[BatchResults | None, flag("Where the results of a job are.", _SHAPE)] = None
    result: Annotated[BatchResult | None, flag("The form of the result of a row.", _SHAPE)] = None
    max_rows: Annotated[int | None, flag("The most rows of a job.", _LIMIT)] = None
    max_bytes: Annotated[int | None, flag("The most bytes of a job's rows.", _LIMIT)] = None
    max_row_bytes: Annotated[int | None, flag("The most bytes of a row.", _LIMIT)] = None
    price_factor: Annotated[
        float | None,
        flag("What is paid, as a share of the price of single calls.", "Vendors give a discount for waiting."),
    ] = None
    window: Annotated[
        float | None,
        flag("The hours after which the vendor gives a job up.", "Rows that it did not serve by then have expired."),
    ] = None
