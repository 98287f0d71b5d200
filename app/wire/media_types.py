"""Media types of bodies."""


def is_json_media_type(content_type: str | None) -> bool:
    """Return whether a media type is JSON."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")
