import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


def standard(apps, schema_editor):
    apps.get_model("tenants", "Plan").objects.using(schema_editor.connection.alias).create(name="standard")


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0002_invitation"),
    ]

    operations = [
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                (
                    "weight",
                    models.PositiveSmallIntegerField(
                        default=1, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
                (
                    "running_jobs",
                    models.PositiveSmallIntegerField(
                        default=8, validators=[django.core.validators.MinValueValidator(1)]
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("running_jobs__gte", 1), ("weight__gte", 1)),
                        name="plan_gives_something",
                    )
                ],
            },
        ),
        # Companies that are there already get it by the next operation's default.
        migrations.RunPython(standard, migrations.RunPython.noop),
        migrations.AddField(
            model_name="tenant",
            name="plan",
            field=models.ForeignKey(
                default="standard",
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tenants",
                to="tenants.plan",
            ),
            preserve_default=False,
        ),
    ]
