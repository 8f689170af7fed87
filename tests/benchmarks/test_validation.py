"""What the benchmark of the check uploads is what it says: many rows, all of them good, no two alike."""

import io

from benchmarks.validation import upload
from webapp.datasets.validate import validate


def test_the_upload_is_of_good_rows():
    file = io.BytesIO()
    rows = upload(file, megabytes=1)
    report = validate(file).report
    assert (report.rows, report.bad, report.duplicates.count) == (rows, 0, 0)
    assert 1_000_000 <= file.tell() < 1_010_000
    assert report.examples > rows > 500
    assert {each["kind"] for each in report.sensitive.as_json()} == {"email", "phone"}
