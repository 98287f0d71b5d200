"""Answers leave out members without a value: SDKs tell an empty list or map from none."""

import msgspec

from app.sqs.shapes import messages, move_tasks, queues
from app.sqs.shapes.members import AnswerStruct
from tests.walks import for_each

ANSWERS = sorted(
    {
        shape
        for module in (messages, move_tasks, queues)
        for shape in vars(module).values()
        if isinstance(shape, type) and issubclass(shape, AnswerStruct) and shape.__struct_config__.omit_defaults
    },
    key=str,
)


@for_each("shape", ANSWERS)
def test_members_without_a_value_are_left_out(shape: type[AnswerStruct]) -> None:
    fields = msgspec.structs.fields(shape)
    required = {field.name: None for field in fields if field.required}
    encoded = msgspec.to_builtins(shape(**required))
    assert encoded == {field.encode_name: None for field in fields if field.required}
