from adapters_store.traces import trace

CANARY = "zanzibar"


def raised(error: BaseException, *, by: BaseException | None = None) -> BaseException:
    try:
        try:
            if by is not None:
                raise by
        finally:
            raise error
    except BaseException as caught:
        return caught


def test_it_has_types_and_places_and_no_text():
    told = trace(raised(ValueError(CANARY), by=KeyError(CANARY)))
    assert CANARY not in told
    assert told.index("builtins.KeyError") < told.index("which led to") < told.index("builtins.ValueError")
    assert "test_traces.py" in told
    assert "in raised" in told


def test_a_cause_that_is_suppressed_is_not_told():
    error = raised(ValueError(), by=KeyError())
    error.__suppress_context__ = True
    assert "KeyError" not in trace(error)


def test_a_group_has_all_that_it_holds():
    told = trace(raised(ExceptionGroup(CANARY, [ValueError(CANARY), raised(OSError(CANARY))])))
    assert CANARY not in told
    assert "builtins.ValueError" in told
    assert "builtins.OSError" in told


def test_a_circle_ends():
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    assert trace(one).count("builtins.ValueError") == 1
