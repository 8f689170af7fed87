from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_held_out"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="probe",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
