from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_waiting"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="held_out",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="job",
            name="held_out_share",
            field=models.FloatField(default=0.1),
        ),
    ]
