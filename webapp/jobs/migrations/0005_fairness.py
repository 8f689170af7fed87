import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_held_out"),
        ("tenants", "0003_plan"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="charged",
            field=models.FloatField(default=0),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("charged__gt", 0)), fields=["state"], name="job_charged"),
        ),
        migrations.CreateModel(
            name="Share",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="share",
                        serialize=False,
                        to="tenants.tenant",
                    ),
                ),
                ("served", models.FloatField(default=0)),
                ("clock", models.FloatField(default=0)),
            ],
        ),
    ]
