from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_together"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="events_heard",
            field=models.IntegerField(default=0),
        ),
    ]
