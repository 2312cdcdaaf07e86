"""What went wrong with object storage, in a sentence that says what would help. Pure."""

from __future__ import annotations

from typing import Any

from afterwit.core.errors import VersionsRefused, VersionsUnavailable

NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "ProfileNotFound")
NO_RIGHTS = (
    "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "Forbidden", "InvalidAccessKeyId",
    "InvalidToken", "SignatureDoesNotMatch",
)  # fmt: skip
NO_ROOM = (
    "507", "InsufficientCapacity", "InsufficientStorage", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
)  # fmt: skip
BUSY = ("OperationAborted", "RequestTimeout", "SlowDown")
LONGEST = 200
"""Characters of what a server says that are passed on."""


def explained(place: str, endpoint: str | None, error: Exception) -> VersionsUnavailable:
    """What an error of s3fs or botocore means for the versions at `place`."""
    at = f"{place} at {endpoint}" if endpoint else place
    said = _answer(error)
    if said is None:
        if type(error).__name__ in NO_CREDENTIALS:
            return VersionsRefused(
                f"there are no credentials for {at}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_PROFILE"
            )
        if isinstance(error, FileNotFoundError):
            return VersionsUnavailable(f"{at} has no {_short(error)} any more")
        if isinstance(error, ValueError):
            return VersionsRefused(f"{at} cannot be used: {_short(error)}; correct versions.url")
        return VersionsUnavailable(f"{at} does not answer: {_short(error)}")
    status, code, message = said
    words = f"{code}: {message}" if message else code
    if code == "NoSuchBucket":
        bucket = place.partition("://")[2].partition("/")[0]
        return VersionsRefused(f"there is no bucket {bucket} for {at}: make it, or correct versions.url")
    if code in NO_ROOM or status == 507:
        return VersionsRefused(f"{at} has no room ({words}): make some, or lower learner.keep_versions")
    if code in NO_RIGHTS or status == 403:
        return VersionsRefused(
            f"{at} refuses ({words}): the credentials have to list, read, write and delete objects there"
        )
    if status >= 500 or code in BUSY:
        return VersionsUnavailable(f"{at} cannot take or give anything now ({words})")
    return VersionsRefused(f"{at} refuses ({words})")


def _answer(error: BaseException | None) -> tuple[int, str, str] | None:
    """Status, code and message of the server's answer, wherever in the chain of causes it is."""
    while error is not None:
        response: dict[str, Any] | None = getattr(error, "response", None)
        if isinstance(response, dict) and "Error" in response:
            told = response["Error"]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return status, str(told.get("Code", status)), str(told.get("Message", ""))[:LONGEST]
        error = error.__cause__
    return None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__
