"""Flags of a vendor's own batch interface: rows go in together, cost less, and come back within hours."""

from typing import Annotated, Any, Literal

from msgspec import field

from cnllm.registry.flags.describe import READ_PATH, WRITE_PATH, Base

__all__ = ["Batch", "BatchJob", "BatchList", "BatchResult", "BatchResults", "BatchRow", "BatchSubmit", "BatchUpload"]


class BatchRow(Base, frozen=True):
    """The form of a row on its way to the vendor. Why: Batch interfaces do the same with other names."""

    id: Annotated[str | None, WRITE_PATH] = None
    """The path of the row's id."""
    body: Annotated[str | None, WRITE_PATH] = None
    """The path of the request's body."""
    set: dict[str, Any] | None = None
    """The fixed keys of each row. Why: Some want the path of a call."""


class BatchUpload(Base, frozen=True):
    """The upload of a file of rows: a multipart form with one file.

    Why: Batch interfaces do the same with other names.
    """

    path: str | None = None
    """The path of the upload after `base_url`."""
    set: dict[str, str] | None = None
    """The other fields of the form. Why: Files have a purpose."""
    id: Annotated[str | None, READ_PATH] = None
    """The path of the file's id in the response."""


class BatchSubmit(Base, frozen=True):
    """The request that starts a job. Why: Batch interfaces do the same with other names."""

    path: str | None = None
    """The path after `base_url`; {model} is replaced by the model's id."""
    file: Annotated[str | None, WRITE_PATH] = None
    """The path of the file's id in the body."""
    files: Annotated[str | None, WRITE_PATH] = None
    """The path of a list of file ids in the body. Why: Some take several files at once."""
    rows: Annotated[str | None, WRITE_PATH] = None
    """The path of the list of rows in the body, where no file is uploaded."""
    model: Annotated[str | None, WRITE_PATH] = None
    """The path of the model's id in the body. Why: Some jobs name the model once for all rows."""
    mark: Annotated[str | None, WRITE_PATH] = None
    """The path of a text of the client's in the body, which the job carries: metadata or a name. Why: After a crash the
    job is found by it, and is not paid twice.
    """
    set: dict[str, Any] | None = None
    """The fixed keys of the body. Why: Most want a path and a window."""


class BatchJob(Base, frozen=True):
    """A job as the vendor describes it, in answer to the submission, when polled and in the list.

    Why: Batch interfaces do the same with other names.
    """

    path: str | None = None
    """The path of a job after `base_url`; {id} is its id."""
    id: Annotated[str | None, READ_PATH] = None
    """The path of its id."""
    state: Annotated[str | None, READ_PATH] = None
    """The path of its state."""
    states: dict[str, Literal["pending", "done", "failed", "cancelled", "expired"]] | None = None
    """The vendor's words for states → cnllm's. A word that is not here counts as pending."""
    mark: Annotated[str | None, READ_PATH] = None
    """The path of the client's text. Why: It stands elsewhere in some answers than in the submission."""
    created: Annotated[str | None, READ_PATH] = None
    """The path of its time of creation: seconds since 1970, or ISO 8601."""
    finished: Annotated[list[str] | None, READ_PATH] = None
    """The paths of counts of finished rows, which are added up for the progress."""
    errors: Annotated[str | None, READ_PATH] = None
    """The path of what was wrong with a job that failed: a list or one object. Why: Some name the line at fault, which
    cnllm leads back to the row of the input.
    """
    cancel: str | None = None
    """The path to which an empty POST cancels a job; {id} is its id."""


class BatchList(Base, frozen=True):
    """The list of the account's jobs, in which a job is found again after a crash.

    Why: Batch interfaces do the same with other names.
    """

    path: str | None = None
    """The path of the list after `base_url`, with its fixed query."""
    items: Annotated[str | None, READ_PATH] = None
    """The path of the jobs in a page."""
    pages: Literal["token", "last-id", "number"] | None = None
    """How the next page is named: by a token in the page, by the id of the last job, by its number from 0."""
    parameter: str | None = None
    """The query parameter that names the next page."""
    token: Annotated[str | None, READ_PATH] = None
    """The path of the token of the next page."""
    more: Annotated[str | None, READ_PATH] = None
    """The path of a boolean: whether there is another page. Why: Without one a page that holds no jobs, or no token, is
    the last.
    """
    delay: float | None = None
    """The seconds after which a new job is sure to stand in the list; 60 where it is unknown. Why: A list may lag
    behind, and a job that is not found is submitted again.
    """


class BatchResults(Base, frozen=True):
    """The place of the results of a job. Why: Batch interfaces do the same with other names."""

    path: str | None = None
    """The path of a file of results after `base_url`; {file} and {id} are filled in."""
    files: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the ids of its result files in a job; a job may lack any. Why: Errors may have their own."""
    rows: Annotated[str | None, READ_PATH] = None
    """The path of the list of results in a job that holds them itself."""


class BatchResult(Base, frozen=True):
    """The form of the result of a row. Why: Batch interfaces do the same with other names."""

    id: Annotated[str | None, READ_PATH] = None
    """The path of the row's id."""
    body: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the response's body, whose first is taken."""
    status: Annotated[str | None, READ_PATH] = None
    """The path of the response's HTTP status; 200 where there is none."""
    error: Annotated[list[str] | None, READ_PATH] = None
    """The paths of the error of a row without a response."""
    kind: Annotated[str | None, READ_PATH] = None
    """The path of the word that says what became of the row."""
    unserved: dict[str, Literal["expired", "cancelled"]] | None = None
    """The words of that place for a row that was not served and not paid → why. Why: A row that expired is asked again
    by itself. One whose job somebody cancelled waits for the next run, and in some interfaces only its result says so.
    """


class Batch(Base, frozen=True):
    """A vendor's batch interface. Why: Batch interfaces do the same with other names."""

    available: bool | None = None
    """Whether the endpoint serves the model in batches. Why: A wire's table describes the common shape; not every
    endpoint of that wire has the interface.
    """
    input: Literal["file", "inline", "calls"] | None = None
    """How rows reach the vendor: in a file that is uploaded, in the request that starts the job, or as single calls to
    `batch.path`, which wait for hours. Why: Interfaces differ most in this.
    """
    path: str | None = None
    """The path of single calls after `base_url`. Why: Slow calls have a path of their own."""
    row: BatchRow | None = None
    """The form of a row on its way to the vendor."""
    upload: BatchUpload | None = None
    """The upload of a file of rows."""
    submit: BatchSubmit | None = None
    """The request that starts a job."""
    job: BatchJob | None = None
    """A job as the vendor describes it."""
    list_: BatchList | None = field(default=None, name="list")
    """The list of the account's jobs. Why: After a crash the job is found in it, and is not submitted again."""
    results: BatchResults | None = None
    """The place of the results of a job."""
    result: BatchResult | None = None
    """The form of the result of a row."""
    max_rows: int | None = None
    """The most rows of a job. Why: The vendor refuses a whole job that is larger."""
    max_bytes: int | None = None
    """The most bytes of a job's rows. Why: The vendor refuses a whole job that is larger."""
    max_row_bytes: int | None = None
    """The most bytes of a row. Why: The vendor refuses a whole job that is larger."""
    price_factor: float | None = None
    """What is paid, as a share of the price of single calls. Why: Vendors give a discount for waiting."""
    window: float | None = None
    """The hours after which the vendor gives a job up. Why: Rows that it did not serve by then have expired."""
