"""Makes PEFT know a method of ours."""

from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTuner
from peft.utils import PeftType, register_peft_method


def register(name: str, *, config: type[PeftConfig], model: type[BaseTuner], prefix: str) -> PeftType:
    """Add `name` to PEFT's methods. `peft_type` in adapter_config.json is this name.

    PeftType is a closed Enum, and register_peft_method wants a member of it: a member is added first. A PEFT without
    this package refuses such an adapter ("unknown type") instead of adapting every token, which is the point.
    """
    member = str.__new__(PeftType, name)
    member._name_ = member._value_ = name
    PeftType._member_map_[name] = member
    PeftType._value2member_map_[name] = member
    PeftType._member_names_.append(name)
    type.__setattr__(PeftType, name, member)
    register_peft_method(name=name.lower(), config_cls=config, model_cls=model, prefix=prefix)
    return member
