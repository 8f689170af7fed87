import datetime

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0008_events_heard"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="away",
            field=models.DurationField(default=datetime.timedelta()),
        ),
        migrations.AddField(
            model_name="worker",
            name="alone",
            field=models.JSONField(default=list),
        ),
    ]
