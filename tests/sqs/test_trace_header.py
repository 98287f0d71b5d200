"""The trace context of W3C and the header of AWS X-Ray say the same."""

from hypothesis import given
from hypothesis import strategies as st

from app.sqs.trace_header import trace_header_of, traceparent_of
from tests.walks import for_each

TRACE_HEADER = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TRACEPARENT = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"


def test_the_example_of_the_guide_is_converted_both_ways() -> None:
    assert traceparent_of(TRACE_HEADER) == TRACEPARENT
    assert trace_header_of(TRACEPARENT) == TRACE_HEADER


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.sampled_from(["00", "01"]))
def test_a_traceparent_comes_back(trace: int, parent: int, flags: str) -> None:
    traceparent = f"00-{trace:032x}-{parent:016x}-{flags}"
    assert traceparent_of(trace_header_of(traceparent) or "") == traceparent


@for_each(
    ("trace_header", "flags"),
    [
        ("Root=1-5759E988-BD862E3FE1BE46A994272793;Parent=53995C3F42CD8AD8;Sampled=1", "01"),
        (f"Self=1-2-3; {TRACE_HEADER};Lineage=a:0", "01"),
        (TRACE_HEADER.replace("Sampled=1", "Sampled=0"), "00"),
        (TRACE_HEADER.replace(";Sampled=1", ""), "00"),
        (TRACE_HEADER.replace("Sampled=1", "Sampled=?"), "00"),
    ],
)
def test_other_forms_of_the_header_give_the_same_trace(trace_header: str, flags: str) -> None:
    assert traceparent_of(trace_header) == TRACEPARENT[:-2] + flags


@for_each(
    "trace_header",
    [
        "",
        "x",
        ";=;",
        TRACE_HEADER.replace(";Parent=53995c3f42cd8ad8", ""),
        TRACE_HEADER.replace("1-5759", "2-5759"),
        TRACE_HEADER.replace("53995c3f42cd8ad8", "53995c3f42cd8ad"),
        TRACE_HEADER.replace("53995c3f42cd8ad8", "0" * 16),
        TRACE_HEADER.replace("5759e988-bd862e3fe1be46a994272793", "0" * 8 + "-" + "0" * 24),
        TRACE_HEADER + ";" * 1024,
    ],
)
def test_a_header_without_a_root_and_a_parent_gives_no_traceparent(trace_header: str) -> None:
    assert traceparent_of(trace_header) is None


def test_only_the_flag_of_sampling_counts() -> None:
    assert trace_header_of(TRACEPARENT[:-2] + "03") == TRACE_HEADER
    assert trace_header_of(TRACEPARENT[:-2] + "02") == TRACE_HEADER.replace("Sampled=1", "Sampled=0")


@for_each("traceparent", [None, "", "00-1-2-3", TRACEPARENT.upper(), TRACEPARENT + "-x"])
def test_what_is_no_traceparent_gives_no_header(traceparent: str | None) -> None:
    assert trace_header_of(traceparent) is None
