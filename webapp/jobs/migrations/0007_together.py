from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_probe"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="dispatch",
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="worker",
            name="together",
            field=models.IntegerField(default=1),
        ),
    ]
