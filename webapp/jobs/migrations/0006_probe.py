from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0005_fairness"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="probe",
            field=models.JSONField(blank=True, null=True),
        ),
    ]
